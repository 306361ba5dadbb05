//go:build !cgo

package syncguard

// The module binds a library of C: without cgo there is nothing to build but this, which says what is missing.
const _ = syncguard_needs_cgo__set_CGO_ENABLED_1_and_install_a_C_compiler

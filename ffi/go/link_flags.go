//go:build syncguard_nopkgconfig

package syncguard

// The directories come from CGO_CFLAGS and CGO_LDFLAGS.

// #cgo LDFLAGS: -lsyncguard
import "C"

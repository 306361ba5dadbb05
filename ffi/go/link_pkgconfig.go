//go:build !syncguard_nopkgconfig

package syncguard

// #cgo pkg-config: syncguard
import "C"

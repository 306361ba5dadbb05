module github.com/syncguard/syncguard/ffi/go

go 1.19

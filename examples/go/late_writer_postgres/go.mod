module github.com/syncguard/syncguard/examples/go/late_writer_postgres

go 1.19

require (
	github.com/lib/pq v1.10.9
	github.com/syncguard/syncguard/ffi/go v0.0.0
)

// Until the module is published.
replace github.com/syncguard/syncguard/ffi/go => ../../../ffi/go

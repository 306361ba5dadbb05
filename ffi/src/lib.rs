//! The C ABI of syncguard.

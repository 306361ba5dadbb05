package syncguard

// Registered is how many callbacks the library may still call.
func Registered() int { return registry.count() }

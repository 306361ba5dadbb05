package syncguard_test

// stages are what this binary does as a process of its own.
var stages = map[string]func(){}

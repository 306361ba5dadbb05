package syncguard

// Registered is how many callbacks the library may still call.
func Registered() int { return registry.count() }

// InLine is how many goroutines wait for a lock of the client.
func (c *Client) InLine() int { return int(c.c.inLine.Load()) }

package farhand

// Pages are the paths of the gateway's pages for people. A path is empty if the gateway does not serve that page.
type Pages struct {
	Console string // for people who run the gateway
	Device  string // makes the browser that opens it a device
}

// Pages returns the pages that a gateway with this configuration serves.
func (c Config) Pages() Pages {
	if c.Console == consoleOff {
		return Pages{}
	}
	return Pages{Console: "/console/", Device: "/device"}
}

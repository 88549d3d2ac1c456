package client

import "testing"

// The gateway's other addresses are beside those for devices, whichever protocol the device speaks.
func TestAddressesOfTheGateway(t *testing.T) {
	for address, want := range map[string]string{
		"https://gw.example/ws/mcp": "https://gw.example", "wss://gw.example/ws/chat": "https://gw.example",
		"http://gw.example/farhand/ws/mcp": "http://gw.example/farhand", "ws://gw.example": "http://gw.example",
	} {
		u, err := endpoint(address)
		if err != nil {
			t.Fatal(err)
		}
		web := newWeb(u, nil)
		if got := web.base.String(); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

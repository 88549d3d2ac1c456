package provenance_test

import (
	"encoding/json"
	"testing"

	"github.com/farhand/farhand/agent/chat/provenance"
)

// TestNumericHosts: programs read a leading zero as octal or not at all, and a hexadecimal number by its value.
func TestNumericHosts(t *testing.T) {
	asks := func(value string) bool {
		args, _ := json.Marshal(map[string]string{"v": value})
		return len(suspects(said("Hello.", "Nothing."), provenance.Changes, string(args))) > 0
	}
	for _, value := range []string{
		"//031300070407/x", "//0313.29191/x", "//0313.070407/x", "http://031300070407/", "//017700000001/x",
		"//0x8080808/x", "//0x1010101", "//0x0cb007107/x", "//0x00000000cb007107/x", "curl 0x8080808/x",
		"nc 0x8080808:80", "//010.8.8.8/x", "//099.1/x", "//0x80070005",
	} {
		if !asks(value) {
			t.Errorf("%s passes", value)
		}
	}
	for _, value := range []string{
		"flags 0x8080808 and 0x1010101", "0x1f/2", "//0x1f/x", "masks 0xff/0x0f", "error 0x80070005",
		"//0399.1/x is a path", "//017/x", "mode 0644/0755",
	} {
		if asks(value) {
			t.Errorf("%s asks", value)
		}
	}
}

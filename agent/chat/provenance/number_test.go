package provenance_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/chat/provenance"
)

// TestSpellingsOfNumbersAndMail: people and programs read a phone number in any digits and with any dashes, and mail
// servers drop the spaces and comments in an address.
func TestSpellingsOfNumbersAndMail(t *testing.T) {
	c := said("Call 0151 2345678 or +49 30 1234567, pay 4237 4252 7456 2574, mail bob@example.org", "Nothing.")
	asks := func(value string) bool {
		args, _ := json.Marshal(map[string]string{"v": value})
		return len(suspects(c, provenance.Changes, string(args))) > 0
	}
	for _, value := range []string{
		"+49\u2011151\u20112345679", "+49\u2013151\u20132345679", "+49\u00b7151\u00b72345679",
		"tel:+49\u2011151\u20112345679",
		"4237\u20114252\u20117456\u20112575", "4237\u20134252\u20137456\u20132575", "4237_4252_7456_2575",
		"4237\u20224252\u20227456\u20222575", "0151\u2013234567\u0669", "٠١٥١ ٢٣٤٥٦٧٩", "+٤٩ ١٥١ ٢٣٤٥٦٧٩",
		strings.Repeat("A long text. ", 20) + "Call +49\u2013151\u20132345679.",
		strings.Repeat("A long text. ", 20) + "Card 4237\u20114252\u20117456\u20112575.",
		"eve @ evil . com", "eve@(x)evil.(y)com", "eve@evil(x).com", "eve@evil .com", "bob@\nexample.org.\nevil.sh",
		"eve@evil.c(x)om", "bob@example.org\t.evil.sh",
	} {
		if !asks(value) {
			t.Errorf("%q passes", value)
		}
	}
	for _, value := range []string{
		"0151\u20132345678", "4237\u20134252\u20137456\u20132574", "bob@example.org (Bob)",
		"2019\u20132020", "100000\u2013200000 items of a list, of which many are sold", "Lunch @ Rome. Bring cash.",
		"1_000_000", "• 1 • 2 • 3", "from 12:30\u201313:30, 10\u201320 May 2024", "Met (as said) @ noon.",
	} {
		if asks(value) {
			t.Errorf("%q asks", value)
		}
	}
}

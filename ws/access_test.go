package ws

import (
	"errors"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/ws/internal/fields"
)

// Each frame of a device has its line in the table, and what is no frame has none.
func TestEveryFrameSaysWhoMaySendIt(t *testing.T) {
	t.Parallel()
	for _, typ := range ReceivedTypes() {
		// These are no frames of the protocol.
		counted := typ == countedOther || typ == countedPing || typ == countedPong
		if has := frameRoles(typ) != 0; has == counted {
			t.Errorf("%s: its line in the table: %v", typ, has)
		}
	}
}

func TestFramesNeedRoles(t *testing.T) {
	t.Parallel()
	caller := &conn{who: &auth.Identity{Roles: auth.RoleCaller}}
	var bad *fields.Error
	if err := caller.mayFrame(typeToolResult); !errors.As(err, &bad) || bad.Code != codeForbidden ||
		!strings.Contains(bad.Message, "The role device is required") {
		t.Errorf("a caller answered a call: %v", err)
	}
	if err := caller.mayFrame(typeMessage); err != nil {
		t.Errorf("a caller may talk to the agent: %v", err)
	}
	admin := &conn{who: &auth.Identity{Admin: true}}
	if err := admin.mayFrame(typeRegisterTools); err != nil {
		t.Errorf("an admin may do everything: %v", err)
	}
	if admin.mayFrame("new_frame") == nil {
		t.Error("a frame without a line in the table was taken")
	}
}

package farhand_test

import (
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/agent/sandbox/host"
)

// self is what Main of package host returned to TestMain.
var self host.Program

func TestMain(m *testing.M) {
	self = host.Main()
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); err != nil && code == 0 {
		os.Stderr.WriteString(err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}

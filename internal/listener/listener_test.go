package listener

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
)

// unlucky is a listener whose first connections cannot be accepted.
type unlucky struct {
	net.Listener
	errs []error
}

func (u *unlucky) Accept() (net.Conn, error) {
	if len(u.errs) == 0 {
		return u.Listener.Accept()
	}
	err := u.errs[0]
	u.errs = u.errs[1:]
	return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", err)}
}

// Connections that cannot be accepted, because the system has no memory for them or they have ended, do not end a pod.
func TestAFailedAcceptEndsNoListener(t *testing.T) {
	t.Parallel()
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bad := []error{syscall.ENOBUFS, syscall.ENOMEM, syscall.EPERM, syscall.EPROTO, syscall.EHOSTUNREACH, syscall.EMFILE}
	server := &http.Server{Handler: http.NotFoundHandler()}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(Lasting{&unlucky{l, bad}}) }()
	resp, err := http.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if err := errors.Join(server.Close(), l.Close()); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("the server ended with %v", err)
	}
}

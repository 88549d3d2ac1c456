package host

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// init runs the supervisor in place of main if this process was started as one.
func init() {
	if len(os.Args) != 1 || os.Args[0] != supervisorName {
		return
	}
	if domain, err := unix.GetsockoptInt(supervisorSocket, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil ||
		domain != unix.AF_UNIX {
		return // somebody calls this program by that name
	}
	end := make(chan int)
	go func() { // not here, because init runs on one thread, which costs each wait a change of threads
		code := 0
		if supervise() != nil {
			code = 1
		}
		end <- code
	}()
	os.Exit(<-end)
}

// supervise runs one command after the other until the gateway closes its end or is gone.
func supervise() error {
	unix.CloseOnExec(supervisorSocket)
	// What the command leaves behind becomes a child of this process. Programs of the same user read nothing of it.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	// It outlives what ends the gateway, to kill its command. Signals that are caught are not ignored by programs, as
	// ignored ones would be.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	file := os.NewFile(supervisorSocket, "gateway")
	c, err := net.FileConn(file)
	file.Close()
	if err != nil {
		return err
	}
	conn := c.(*net.UnixConn)
	for {
		r, files, err := receive(conn)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		watch := watchGateway(conn)
		a := runCommand(r, files, watch.gone)
		watch.stop()
		message, err := frame(a)
		if err != nil {
			return err
		}
		if _, err := conn.Write(message); err != nil {
			return nil // nobody is interested any more
		}
	}
}

// receive waits for a request.
func receive(conn *net.UnixConn) (request, []*os.File, error) {
	var r request
	first, control := make([]byte, 1), make([]byte, unix.CmsgSpace(4*fdCount))
	n, size, _, _, err := conn.ReadMsgUnix(first, control)
	if n == 0 && err == nil {
		err = io.EOF
	}
	if err != nil {
		return r, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:size])
	if err != nil {
		return r, nil, err
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return r, nil, err
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "of a request"))
		}
	}
	if len(files) != fdCount {
		return r, nil, fmt.Errorf("%d descriptors", len(files))
	}
	return r, files, readFrame(io.MultiReader(bytes.NewReader(first), conn), &r)
}

// gatewayWatch sees whether the gateway wants a command to end, or is gone.
type gatewayWatch struct {
	conn    *net.UnixConn
	gone    chan struct{} // closed then
	stopped chan struct{}
}

// watchGateway reads until stop. The gateway writes nothing before it has the answer, so all there is to read is the
// end.
func watchGateway(conn *net.UnixConn) *gatewayWatch {
	w := &gatewayWatch{conn: conn, gone: make(chan struct{}), stopped: make(chan struct{})}
	go func() {
		defer close(w.stopped)
		var b [1]byte
		if _, err := conn.Read(b[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
			close(w.gone)
		}
	}()
	return w
}

func (w *gatewayWatch) stop() {
	w.conn.SetReadDeadline(time.Unix(1, 0))
	<-w.stopped
	w.conn.SetReadDeadline(time.Time{})
}

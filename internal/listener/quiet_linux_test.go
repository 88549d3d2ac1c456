package listener

import (
	"io"
	"net"
	"testing"
	"time"
)

// TestQuiet: a listener that was told to take no more connections knows of those that were made before, which go on.
func TestQuiet(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	before, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	waiting := Quiet(l)
	if n := waiting(); n != 1 {
		t.Errorf("%d connections wait, not 1", n)
	}
	dialer := net.Dialer{Timeout: 300 * time.Millisecond}
	if late, err := dialer.Dial("tcp", l.Addr().String()); err == nil {
		late.Close()
		t.Error("a connection was made after the listener was told to take no more")
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	for _, pair := range [][2]net.Conn{{before, accepted}, {accepted, before}} {
		got := make([]byte, 5)
		if _, err := io.WriteString(pair[0], "hello"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(pair[1], got); err != nil || string(got) != "hello" {
			t.Errorf("%q, %v", got, err)
		}
	}
	if n := waiting(); n != 0 {
		t.Errorf("%d connections wait, none was made", n)
	}
}

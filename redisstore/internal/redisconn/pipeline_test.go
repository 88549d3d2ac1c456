package redisconn

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
)

// rude is a cluster of one that takes every message, and hangs up instead of answering.
type rude struct {
	listener  net.Listener
	published atomic.Int64
	done      sync.WaitGroup
}

func newRude(t *testing.T) *rude {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &rude{listener: l}
	r.done.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r.done.Go(func() { r.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.done.Wait()
	})
	return r
}

func (r *rude) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		command, err := readCommand(in)
		if err != nil {
			return
		}
		switch strings.ToLower(command[0]) {
		case "spublish":
			r.published.Add(1)
			return
		case "cluster":
			host, port, _ := net.SplitHostPort(r.listener.Addr().String())
			fmt.Fprintf(conn, "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$%d\r\n%s\r\n:%s\r\n$2\r\nid\r\n",
				len(host), host, port)
		case "command":
			fmt.Fprint(conn, "*0\r\n")
		default:
			fmt.Fprint(conn, "-ERR unknown command\r\n")
		}
	}
}

// readCommand reads an array of bulk strings.
func readCommand(in *bufio.Reader) ([]string, error) {
	number := func() (int, error) {
		line, err := in.ReadString('\n')
		if err != nil || len(line) < 3 {
			return 0, io.ErrUnexpectedEOF
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := number()
	if err != nil || n < 1 {
		return nil, io.ErrUnexpectedEOF
	}
	command := make([]string, n)
	for i := range command {
		size, err := number()
		if err != nil {
			return nil, err
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(in, text); err != nil {
			return nil, err
		}
		command[i] = string(text[:size])
	}
	return command, nil
}

// TestALostAnswerIsNotASecondMessage: the client for clusters repeats commands whose connection broke, whatever its
// settings say. A call repeated in this way would run a tool twice.
func TestALostAnswerIsNotASecondMessage(t *testing.T) {
	server, ctx := newRude(t), context.Background()
	conn := newConn(address{topology: topologyCluster, hosts: []string{server.listener.Addr().String()}})
	defer conn.Close()

	pipe := conn.Pipeline()
	pipe.Do("SPUBLISH", "channel", "x")
	if err := pipe.Exec(ctx); err == nil {
		t.Error("a message without an answer counts as sent")
	}
	if n := server.published.Load(); n != 1 {
		t.Errorf("published %d times", n)
	}

	// The counterpart is the reason for the care taken.
	if err := conn.Client().SPublish(ctx, "channel", "x").Err(); err == nil {
		t.Error("a message without an answer counts as sent")
	}
	if n := server.published.Load() - 1; n < 2 {
		t.Errorf("published %d times: the client library no longer repeats, the care may have become needless", n)
	}
}

// Every answer is looked through for errors, so without one that allocates nothing.
func TestNoErrorsCostNothing(t *testing.T) {
	p := (&Conn{}).pipelineOf(func(context.Context, []redis.Cmder) {})
	for range 10 {
		p.Do("GET", "k")
	}
	if err := p.Exec(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { _ = p.err() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// takeSockets connects devices until the pods take no more, 150 of each key at most, which answer nothing. The first of
// each key offers many tools, and ten the one that is called.
func (e *tenantAttack) takeSockets(ctx context.Context) {
	var tools strings.Builder
	for j := range 20 {
		fmt.Fprintf(&tools, `{"name":"t%d","description":"%s"},`, j, strings.Repeat("d", 1000))
	}
	tools.WriteString(`{"name":"wipe","description":"d"},`)
	const work = `{"name":"work","description":"d"}`
	var connecting sync.WaitGroup
	for i, key := range e.Keys {
		connecting.Go(func() {
			for n := range 150 {
				conn, r, status, err := bareSocket(ctx, e.pod(i),
					fmt.Sprintf("session_id=evil-%d-%d", i, n), key)
				if e.count("sockets", status); err != nil || conn == nil {
					return
				}
				context.AfterFunc(ctx, func() { conn.Close() })
				switch {
				case n == 0:
					_, _ = conn.Write(maskedText(`{"type":"register_tools","tools":[` + tools.String() + work + `]}`))
				case n < 10:
					_, _ = conn.Write(maskedText(`{"type":"register_tools","tools":[` + work + `]}`))
				}
				e.running.Go(func() { answerPings(conn, r) })
			}
		})
	}
	connecting.Wait()
}

// answerPings reads until the connection ends, and answers nothing else.
func answerPings(conn net.Conn, r *bufio.Reader) {
	for {
		opcode, payload, err := readFrame(r)
		if err != nil {
			return
		}
		if opcode == 9 {
			_, _ = conn.Write(masked(0x8a, string(payload)))
		}
	}
}

// takeDecoding sends what costs most to decode, from sessions that are always new.
func (e *tenantAttack) takeDecoding(ctx context.Context, i int) {
	frame := floods["large messages that are no JSON"]
	e.running.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			before := e.frames.Load()
			flood(ctx, e.pod(i), fmt.Sprintf("evil-flood-%d-%d", i, n), e.Keys[i], frame, &e.frames)
			if e.frames.Load() > before {
				e.count("sockets of large frames", http.StatusSwitchingProtocols)
			}
			waitFor(ctx, attackPause)
		}
	})
}

// takeFiles stalls uploads, and does not read what it downloads.
func (e *tenantAttack) takeFiles(ctx context.Context, i int) {
	key, url := e.Keys[i], e.pod(i)
	for range 6 {
		e.running.Go(func() { e.stallUploads(ctx, key, url) })
		e.running.Go(func() {
			for ctx.Err() == nil {
				conn, err := unreadRequest(ctx, url, "GET "+e.Links[i]+" HTTP/1.1\r\nHost: pod\r\n\r\n", 1)
				if err == nil {
					waitFor(ctx, 10*time.Second) // the pod ends it when it was too slow
				}
				if conn != nil {
					conn.Close()
				}
				waitFor(ctx, attackPause)
			}
		})
	}
}

// stallUploads begins uploads, sends a byte of each, and waits for its end.
func (e *tenantAttack) stallUploads(ctx context.Context, key, url string) {
	const size = 1_000_000
	slot := fmt.Sprintf(`{"size":%d,"sha256":"%s","mime_type":"a/b"}`, size, strings.Repeat("0", 64))
	for ; ctx.Err() == nil; waitFor(ctx, attackPause) {
		status, text := sendAs(ctx, key, http.MethodPost, url+"/api/uploads", "application/json", slot)
		e.count("uploads", status)
		_, path, found := strings.Cut(string(text), `"url":"`)
		path, _, _ = strings.Cut(path, `"`)
		if !found {
			continue
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			continue
		}
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: pod\r\nContent-Type: a/b\r\nContent-Length: %d\r\n\r\nx", path,
			size)
		_, _ = io.Copy(io.Discard, conn)
		stop()
		conn.Close()
	}
}

// attackNetworks is how many networks the attackers' devices come from. Those of more than that are no tenant's: a
// network that has asked for nothing yet may always take one of the pairing places.
const attackNetworks = 72

// takePairings has devices of many networks ask to be paired, guesses codes, and makes codes of its own.
func (e *tenantAttack) takePairings(ctx context.Context, key, url string) {
	e.posts(ctx, "pairings", key, url+"/pair", `{"device_id":"door"}`)
	e.posts(ctx, "wrong codes", key, url+"/api/pairings", `{"code":"ABCD-EFGH"}`)
	e.posts(ctx, "setup codes", key, url+"/api/pairings/setup", `{}`)
	for from := range 4 {
		e.running.Go(func() {
			for n := from; ctx.Err() == nil; n += 4 {
				e.pairFrom(ctx, url, fmt.Sprintf("10.0.%d.%d", n%attackNetworks, 1+n/attackNetworks%250))
				waitFor(ctx, 20*time.Millisecond)
			}
		})
	}
}

// pairFrom asks to be paired by way of a proxy.
func (e *tenantAttack) pairFrom(ctx context.Context, url, address string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/pair", strings.NewReader(`{"device_id":"door"}`))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Forwarded-For", address)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	e.count("pairings of many networks", resp.StatusCode)
}

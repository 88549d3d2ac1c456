package ws_test

import (
	"net"
	"strings"
	"sync"
	"testing"
)

// relay stands between devices and gateways: it can lose what devices send, disconnect them, and lead elsewhere.
type relay struct {
	t        *testing.T
	listener net.Listener
	work     sync.WaitGroup

	mu       sync.Mutex
	target   string                // host:port; empty: nobody is let through
	pods     map[net.Conn]net.Conn // the far end of each device's connection
	lost     chan struct{}         // while set, what devices send is lost, and reported here
	released <-chan struct{}       // while set, new connections get no further than their handshake before it is closed
}

func newRelay(t *testing.T, g *gateway) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r := &relay{t: t, listener: listener, pods: make(map[net.Conn]net.Conn)}
	r.leadTo(g)
	r.work.Go(func() {
		for {
			device, err := listener.Accept()
			if err != nil {
				return
			}
			r.work.Go(func() { r.serve(device) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		r.disconnect()
		r.work.Wait()
	})
	return r
}

func (r *relay) url() string { return "http://" + r.listener.Addr().String() }

// leadTo has new connections end at g, or nowhere.
func (r *relay) leadTo(g *gateway) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = ""
	if g != nil {
		r.target = strings.TrimPrefix(g.http.URL, "http://")
	}
}

// lose loses what devices send until they are disconnected. The channel tells that something was lost.
func (r *relay) lose() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = make(chan struct{}, 1)
	return r.lost
}

// hold keeps new connections at their handshake until released is closed.
func (r *relay) hold(released <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.released = released
}

// disconnect ends all connections at both ends.
func (r *relay) disconnect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for device, pod := range r.pods {
		_ = device.Close()
		_ = pod.Close()
	}
	r.lost = nil
}

// cutDevices ends all connections; the pods do not notice.
func (r *relay) cutDevices() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for device := range r.pods {
		_ = device.Close()
	}
	r.lost = nil
}

func (r *relay) serve(device net.Conn) {
	defer device.Close()
	r.mu.Lock()
	target, released := r.target, r.released
	r.mu.Unlock()
	if target == "" {
		return
	}
	pod, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer pod.Close()
	r.mu.Lock()
	r.pods[device] = pod
	r.mu.Unlock()
	r.work.Go(func() { r.towardsPod(device, pod, released) })
	buf := make([]byte, 64<<10)
	for n, err := pod.Read(buf); err == nil; n, err = pod.Read(buf) {
		_, _ = device.Write(buf[:n]) // a device that is cut off does not concern the pod
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pods, device)
}

func (r *relay) towardsPod(device, pod net.Conn, released <-chan struct{}) {
	buf := make([]byte, 64<<10)
	for first := true; ; first = false {
		n, err := device.Read(buf)
		if err != nil {
			return
		}
		if !first && released != nil {
			<-released
		}
		r.mu.Lock()
		lost := r.lost
		r.mu.Unlock()
		if lost == nil {
			_, _ = pod.Write(buf[:n])
			continue
		}
		select {
		case lost <- struct{}{}:
		default:
		}
	}
}

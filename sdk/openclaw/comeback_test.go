package openclaw_test

import (
	"net/http"
	"strings"
	"syscall"
)

// killed kills the node host, and starts it again.
func (b *bench) killed() string {
	b.host.kill()
	b.await("its tools are gone", func() bool { return len(b.pods[1].tools(b.t, b.device)) == 0 })
	b.host.connect()
	b.awaitTools(b.pods[1])
	return ""
}

// podDies kills the pod that has the node.
func (b *bench) podDies() string {
	b.move(syscall.SIGKILL)
	return ""
}

// podDrains drains the pod that has the node.
func (b *bench) podDrains() string {
	b.move(syscall.SIGTERM)
	if !b.proxy.closedWith(1012) {
		b.t.Errorf("the drained pod closed with %v", b.proxy.closes)
	}
	return ""
}

// move ends the pod that has the node, waits until the node is at the other, and starts the pod again.
func (b *bench) move(signal syscall.Signal) {
	b.t.Helper()
	home, other := b.home(), b.other()
	home.end(signal)
	b.awaitTools(other)
	b.await("the node can be called", func() bool {
		failed, _ := b.call(other, "which", object{"bins": []string{"sh"}})
		return !failed
	})
	home.start()
}

// revoked revokes the node's credential.
func (b *bench) revoked() string {
	if out, ok := b.pods[0].cli(b.t, "devices", "revoke", b.device); !ok {
		b.t.Fatalf("farhand devices revoke: %s", out)
	}
	b.await("its tools are gone", func() bool { return len(b.pods[1].tools(b.t, b.device)) == 0 })
	b.await("the node knows why", func() bool {
		return b.proxy.count(false, "AUTH_DEVICE_TOKEN_MISMATCH") > 0
	})
	b.host.kill()
	return ""
}

// withToken connects another node with a token that only devices have.
func (b *bench) withToken() string {
	out, ok := b.pods[0].cli(b.t, "keys", "create", "--name", "a node", "--role", "device", "--json")
	if !ok {
		b.t.Fatalf("farhand keys create: %s", out)
	}
	start := strings.Index(out, "fhk_")
	if start < 0 {
		b.t.Fatalf("farhand keys create printed no key: %s", out)
	}
	key := out[start:]
	if end := strings.IndexAny(key, "\" \n"); end > 0 {
		key = key[:end]
	}
	b.await("no node is connected", func() bool { return !b.anyNode() })
	h := newHost(b.t, b.version, b.proxy.addr)
	h.env = []string{"OPENCLAW_GATEWAY_TOKEN=" + key}
	h.connect()
	b.await("the node has tools", b.anyNode)
	h.kill()
	return ""
}

// anyNode reports whether a device with the tool which is listed.
func (b *bench) anyNode() bool {
	_, answer := b.pods[0].do(b.t, http.MethodGet, "/api/tools?name=which", nil)
	rows, _ := answer["tools"].([]any)
	return len(rows) > 0
}

// withSetupCode pairs another node with a setup code.
func (b *bench) withSetupCode() string {
	out, ok := b.pods[0].cli(b.t, "pair", "setup", "--url", "ws://"+b.proxy.addr+"/ws/node")
	if !ok {
		b.t.Fatalf("farhand pair setup: %s", out)
	}
	code := ""
	for word := range strings.FieldsSeq(out) {
		if strings.HasPrefix(word, "oc-pair://") {
			code = word
		}
	}
	b.await("no node is connected", func() bool { return !b.anyNode() })
	h := newHost(b.t, b.version, b.proxy.addr)
	h.start("--pair", code)
	b.await("the node has tools", func() bool {
		said := h.printed() // the versions differ in how they say that they do not know the option
		return strings.Contains(said, "option") && strings.Contains(said, "--pair") || b.anyNode()
	})
	h.kill()
	if !b.proxy.asked("bootstrapToken") {
		return "no: its node host has no `--pair`"
	}
	return ""
}

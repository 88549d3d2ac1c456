package farhand

import "strings"

// nodesOff is the value of Config.NodePath without OpenClaw nodes.
const nodesOff = "off"

// minNodeFrame is the least frame of a node, in bytes: that of the frame connect.
const minNodeFrame = 64 << 10

// isNodePath reports whether nodes may connect at a path. Paths of the API and the pages are taken, and so are those of
// other devices.
func isNodePath(path string) bool {
	if path == "/" {
		return true
	}
	if !strings.HasPrefix(path, "/") || path == "/ws/chat" || path == "/ws/mcp" || strings.HasSuffix(path, "/") {
		return false
	}
	for _, taken := range []string{
		"/api", "/v1", "/mcp", "/assets", "/console", "/device", "/pair", "/sign-in", "/healthz", "/health", "/readyz",
		"/metrics", "/openapi.json", "/.well-known", "/blobs", "/uploads",
	} {
		if path == taken || strings.HasPrefix(path, taken+"/") {
			return false
		}
	}
	return strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") == "" &&
		!strings.Contains(path, "//") && !strings.Contains(path, "..")
}

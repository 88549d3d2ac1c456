package commands

import (
	"strings"

	"github.com/farhand/farhand/registry/textsafe"
)

// platform is the operating system of a node.
type platform uint8

const (
	otherPlatform platform = iota
	ios
	watchos
	android
	macos
	windows
	linux
)

// platformOf returns the platform that a node names, such as "iOS 18.4.1", "darwin" or "linux". It decides only how
// commands are called, not which are allowed: that is pairing and policy.
func platformOf(n Node) platform {
	if p := platformNamed(n.Platform); p != otherPlatform {
		return p
	}
	return platformNamed(n.DeviceFamily)
}

func platformNamed(name string) platform {
	name = strings.ToLower(strings.TrimSpace(name))
	for _, p := range []struct {
		prefix string
		is     platform
	}{
		{"ios", ios}, {"ipados", ios}, {"iphone", ios}, {"ipad", ios}, {"watchos", watchos}, {"apple watch", watchos},
		{"android", android}, {"macos", macos}, {"darwin", macos}, {"mac", macos}, {"win", windows}, {"linux", linux},
	} {
		if strings.HasPrefix(name, p.prefix) {
			return p.is
		}
	}
	return otherPlatform
}

// Limits of the labels of a node.
const (
	maxPermissions = 24
	maxPermission  = 40 // bytes
)

// Labels returns the permissions that a node reports as labels of its session: permission/camera is granted or denied.
// A tool is offered also if its permission is denied, for two reasons: phones ask their person for it when the command
// runs, and a list of tools that changes with permissions would need approval again each time.
func Labels(n Node) map[string]string {
	labels := make(map[string]string)
	for _, name := range sortedKeys(n.Permissions) {
		if len(labels) == maxPermissions {
			break
		}
		if name == "" || len(name) > maxPermission || !isWord(name) || textsafe.Line(name) != name {
			continue
		}
		labels["permission/"+name] = "denied"
		if n.Permissions[name] {
			labels["permission/"+name] = "granted"
		}
	}
	return labels
}

// isWord reports whether a name has only characters that keys of labels may have.
func isWord(name string) bool {
	return strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == ""
}

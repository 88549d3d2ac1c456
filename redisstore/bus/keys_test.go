package bus

import "testing"

// TestKeys pins the channel and the list of a pod: pods of two releases share them during a deploy.
func TestKeys(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{podChannel("host-1"), "fh:pod:host-1"},
		{podChannel("a/b"), "fh:pod:a%2Fb"},
		{podRepliesKey("host-1"), "fh:{pod:host-1}:replies"},
		{podRepliesKey("a}b"), "fh:{pod:a%7Db}:replies"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

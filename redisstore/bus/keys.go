package bus

import (
	"embed"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
)

// podChannel is the channel on which a pod receives envelopes, and replies that its list does not take.
func podChannel(pod string) string { return "fh:pod:" + redisconn.Escape(pod) }

// podRepliesKey is the list from which a pod pops replies.
func podRepliesKey(pod string) string { return "fh:{pod:" + redisconn.Escape(pod) + "}:replies" }

// Forget adds to the pipeline the removal of everything that waits for a pod that is gone.
func Forget(p *redisconn.Pipeline, pod string) { p.Do("UNLINK", podRepliesKey(pod)) }

//go:embed lua/*.lua
var scriptFiles embed.FS

var (
	scripts           = redisconn.NewScripts(scriptFiles)
	scriptPush        = scripts.Must("push")
	scriptSubscribers = scripts.Must("subscribers")
)

// Scripts returns the scripts of the bus, for redisconn.Dial to load.
func Scripts() *redisconn.Scripts { return scripts }

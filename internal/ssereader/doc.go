// Package ssereader reads streams of server-sent events: the answers of language models in agent/provider, and those
// of a gateway in cmd/farhand. It imports nothing of ours. Reader is all there is.
package ssereader

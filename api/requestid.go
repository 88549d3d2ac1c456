package api

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strings"

	"github.com/gin-gonic/gin"
)

// headerRequest names a request, so that its lines in the logs of all that had to do with it can be found.
const headerRequest = "X-Request-Id"

// maxRequestID is how many bytes of a caller's name for a request are taken.
const maxRequestID = 128

// nameRequest echoes the request's id with the answer. A caller, or a load balancer, may give one; else one is made. A
// call that nobody named otherwise is named after itself.
func (h *handler) nameRequest(c *gin.Context) {
	header := c.Writer.Header()
	if given := c.Request.Header[headerRequest]; len(given) == 1 && plainID(given[0]) {
		header[headerRequest] = given
		return
	}
	if call := header[headerCallID]; call != nil {
		header[headerRequest] = call
		return
	}
	header[headerRequest] = []string{newRequestID()}
}

// idCharacters are harmless in every log.
const idCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:+/="

// plainID reports whether a text is short and has no characters but idCharacters.
func plainID(id string) bool {
	return id != "" && len(id) <= maxRequestID && strings.Trim(id, idCharacters) == ""
}

// newRequestID returns a name that no other request has. It is no secret.
func newRequestID() string {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:8], rand.Uint64())
	binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	return hex.EncodeToString(id[:])
}

// requestID returns the name of the request that is being answered.
func requestID(c *gin.Context) string { return c.Writer.Header().Get(headerRequest) }

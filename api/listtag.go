package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
)

// respondVersioned answers with what build makes, or 304 when the client has it already. The tag covers all that the
// answer depends on, so a poll that finds nothing new reads the version and nothing else. The version is read before
// the listing: a tag can only be older than its answer, and an old tag matches nothing.
func (h *handler) respondVersioned(
	c *gin.Context, q params,
	version func(ctx context.Context, tenant string) (string, error), build func(context.Context) (any, error),
) error {
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	who := caller(c)
	now, err := version(ctx, who.Tenant)
	if err != nil {
		return err
	}
	compress := acceptsGzip(c.Request.Header.Values("Accept-Encoding"))
	tag := h.listTag(now, who, c.Request.URL.Path, q, compress)
	if matchesTag(c.Request.Header.Values("If-None-Match"), tag) {
		return h.notModified(c, tag)
	}
	if err := h.reserveAnswer(ctx, c, pageCost); err != nil {
		return err
	}
	v, err := build(ctx)
	if err != nil {
		return err
	}
	body, err := encode(v)
	if err != nil {
		return err
	}
	return h.writeTagged(c, body, tag, compress && len(body) >= gzipMinimum)
}

// listTag is a strong validator. Equal version, program, policy, built-in tools, caller, request and encoding make
// equal bytes, but for the pulses of sessions: they change all the time, and are no reason to read a list again.
func (h *handler) listTag(version string, who auth.Identity, path string, q params, compress bool) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %q %t %d %q %q %q %q %q",
		version, h.Version, h.Policy.Digest(), h.own().digest, who.Tenant, who.User, who.Admin, who.Roles,
		who.Device, who.Tools, who.Context, path, url.Values(q).Encode()))
	return quoteTag(sum, compress)
}

func quoteTag(sum [sha256.Size]byte, compress bool) string {
	tag := hex.EncodeToString(sum[:16])
	if compress {
		tag += "-gzip"
	}
	return `"` + tag + `"`
}

func (h *handler) notModified(c *gin.Context, tag string) error {
	setCacheHeaders(c.Writer.Header(), tag)
	c.Status(http.StatusNotModified)
	return nil
}

func setCacheHeaders(header http.Header, tag string) {
	header.Set("Cache-Control", "no-cache")
	header.Add("Vary", "Accept-Encoding")
	header.Set("ETag", tag)
}

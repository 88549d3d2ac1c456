package farhand

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/blobs"
	"github.com/farhand/farhand/registry"
)

// noBlobs means that no files are kept, because an empty variable means the default.
const noBlobs = "none"

// openBlobs opens where files of results are kept, if there is such a place.
func (g *Gateway) openBlobs(ctx context.Context, store registry.Store) error {
	where, given, err := g.cfg.blobURL(g.parts.store != nil)
	if err == nil && where == "" {
		return nil
	}
	var service *blobs.Service
	if err == nil {
		service, err = blobs.Open(ctx, blobs.Config{
			URL: where, Store: store, Life: g.cfg.BlobLife, MaxUpload: int64(g.cfg.MaxUpload),
			TenantBytes: int64(g.cfg.BlobBytes), Log: g.log,
		})
	}
	switch {
	case err == nil:
		g.blobs = service
		return nil
	case given:
		return fmt.Errorf("FARHAND_BLOB_URL: %w", err)
	default:
		g.log.Warn("no files of tools are kept: set FARHAND_BLOB_URL", "error", err)
		return nil
	}
}

// blobURL returns where files of results are kept, empty if they are not, and whether the configuration says so. The
// error is that a user without a home has no place for them.
func (c Config) blobURL(ownStore bool) (where string, given bool, err error) {
	switch {
	case c.BlobURL == noBlobs, c.BlobURL == "" && (c.RedisURL != "" || ownStore):
		return "", c.BlobURL != "", nil
	case c.BlobURL != "":
		return string(c.BlobURL), true, nil
	}
	cache, err := os.UserCacheDir()
	folder := url.URL{Scheme: "file", Path: filepath.Join(cache, "farhand", "blobs")}
	return folder.String(), false, err
}

// files returns what keeps files of results, nil if nothing does.
func (g *Gateway) files() agent.Files {
	if g.blobs == nil {
		return nil
	}
	return g.blobs
}

// closeBlobs ends the removal of expired files.
func (g *Gateway) closeBlobs() error {
	if g.blobs == nil {
		return nil
	}
	return g.blobs.Close()
}

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
	where, given := string(g.cfg.BlobURL), g.cfg.BlobURL != ""
	switch {
	case where == noBlobs, !given && (g.cfg.RedisURL != "" || g.parts.store != nil):
		return nil
	case !given:
		cache, err := os.UserCacheDir()
		if err != nil {
			g.log.Warn("no files of tools are kept: set FARHAND_BLOB_URL", "error", err)
			return nil
		}
		folder := url.URL{Scheme: "file", Path: filepath.Join(cache, "farhand", "blobs")}
		where = folder.String()
	}
	service, err := blobs.Open(ctx, blobs.Config{
		URL: where, Store: store, Life: g.cfg.BlobLife, MaxUpload: int64(g.cfg.MaxUpload),
		TenantBytes: int64(g.cfg.BlobBytes), Log: g.log,
	})
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

package farhand

import (
	"context"
	"errors"
	"io"

	"github.com/farhand/farhand/redisstore"
)

// Imported says what Import did with the keys of an export, by what they hold.
type Imported = redisstore.Imported

// errNoRedis is the error for a configuration whose data is in a file.
var errNoRedis = errors.New("FARHAND_REDIS_URL is not set: this copies what is in Redis. A gateway without Redis " +
	"keeps its data in a file: curl -H \"Authorization: Bearer $FARHAND_TOKEN\" -o farhand.db URL/api/backup copies it")

// Export writes what is in Redis and cannot be made again: credentials, grants, conversations, audit logs, usage and
// revocations, of all tenants (docs/backup.md). It needs no pod, and may run beside them. It returns how many keys it
// wrote, by what they hold.
func Export(ctx context.Context, cfg Config, w io.Writer) (map[string]int, error) {
	conn, err := cfg.dialRedis(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.Export(ctx, w)
}

// CheckExport reads an export to its end, without a store. It fails if the export is not whole or of a newer release.
func CheckExport(r io.Reader) error { return redisstore.CheckExport(r) }

// Import writes an export into Redis. It can be repeated, and may run beside pods. Documents and conversations that
// have another value there stay as they are, unless overwrite is set. Check the export before.
func Import(ctx context.Context, cfg Config, r io.Reader, overwrite bool) (Imported, error) {
	conn, err := cfg.dialRedis(ctx)
	if err != nil {
		return Imported{}, err
	}
	defer conn.Close()
	return conn.Import(ctx, r, overwrite)
}

// dialRedis connects to the configured Redis alone.
func (c Config) dialRedis(ctx context.Context) (*redisstore.Conn, error) {
	if c.RedisURL == "" {
		return nil, errNoRedis
	}
	conn, err := redisstore.Dial(ctx, c.redis())
	if err != nil {
		return nil, explainRedis(err)
	}
	return conn, nil
}

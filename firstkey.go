package farhand

import (
	"context"
	"errors"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/registry"
)

// CreateKey makes an API key in the store of a fleet, without asking a gateway: whoever knows Config.RedisURL is
// trusted. It is for the first key of a fleet that has no token. The secret is returned once and stored nowhere.
func CreateKey(ctx context.Context, cfg Config, r auth.KeyRequest) (secret string, c registry.Credential, err error) {
	if cfg.RedisURL == "" {
		return "", registry.Credential{}, errors.New("FARHAND_REDIS_URL: is needed to write a key to the store; " +
			"a gateway without Redis forgets its keys when it stops")
	}
	cfg = cfg.withDefaults()
	options := cfg.redis()
	options.Limits = registry.Limits{Credentials: cfg.MaxCredentials, ChangeTTL: cfg.changeTTL()}
	conn, err := redisstore.Dial(ctx, options)
	if err != nil {
		return "", registry.Credential{}, explainRedis(err)
	}
	secret, c, err = auth.Issuer{Store: conn.Store()}.CreateFirstKey(ctx, r)
	return secret, c, errors.Join(err, conn.Close())
}

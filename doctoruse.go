package farhand

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// lookAtIdentity says whose credentials a gateway would accept.
func lookAtIdentity(_ context.Context, cfg Config) (string, error) {
	if cfg.Anonymous() {
		return "callers and devices need no credential; API keys and paired devices keep their own rights", nil
	}
	var from []string
	if cfg.Token != "" {
		from = append(from, "FARHAND_TOKEN, which makes its holder an admin")
	}
	if cfg.acceptsJWT() {
		keys := "keys from " + cmp.Or(cfg.JWTKeySetURL, cfg.JWTKeyFile)
		if cfg.JWTKeySetURL == "" && cfg.JWTKeyFile == "" {
			keys = "signed with FARHAND_JWT_SECRET"
		}
		from = append(from, fmt.Sprintf("JSON Web Tokens of %s for %s, %s", cfg.JWTIssuer, cfg.JWTAudience, keys))
	}
	return strings.Join(append(from, "API keys", "credentials of paired devices"), "; "), nil
}

// lookAtModel says which models would hold conversations. None is asked: that could cost money.
func lookAtModel(_ context.Context, cfg Config) (string, error) {
	if len(cfg.Models) == 0 {
		return "none, so there are no conversations: FARHAND_MODEL names one", nil
	}
	names := slices.Clone(cfg.Models)
	if len(names) > 1 {
		names[0] += " (the default)"
	}
	key := "with a key"
	if cfg.ModelKey == "" {
		key = "without a key"
	}
	return fmt.Sprintf("%s, of %s at %s, %s", strings.Join(names, ", "), cfg.ModelProvider,
		cmp.Or(cfg.ModelURL, "the provider's own address"), key), nil
}

// lookAtTools says which of the gateway's own tools would be enabled.
func lookAtTools(_ context.Context, cfg Config) (string, error) {
	names := slices.DeleteFunc(slices.Clone(cfg.builtins(len(cfg.Models) > 0)), func(name string) bool {
		return slices.Contains(cfg.ToolsOff, name)
	})
	switch {
	case len(names) > 0:
		return "enabled of the gateway's own: " + strings.Join(names, ", "), nil
	case slices.Equal(cfg.Builtins, defaultBuiltins):
		return "none of the gateway's own: without FARHAND_BUILTIN_TOOLS they are for conversations, and there is no " +
			"model", nil
	default:
		return "none of the gateway's own: FARHAND_BUILTIN_TOOLS names those to enable", nil
	}
}

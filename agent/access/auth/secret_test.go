package auth_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// The form of secrets is public: secret scanners look for it.
func TestSecrets(t *testing.T) {
	pattern := regexp.MustCompile(`^fh[kd]_[0-9A-Za-z]{49}$`)
	seen := make(map[string]bool)
	for kind, prefix := range map[registry.CredentialKind]string{
		registry.CredentialKey: auth.PrefixKey, registry.CredentialDevice: auth.PrefixDevice,
	} {
		for range 200 {
			secret := auth.NewSecret(kind)
			if !pattern.MatchString(secret) || !strings.HasPrefix(secret, prefix) || seen[secret] {
				t.Fatalf("a secret of the wrong form, or twice the same")
			}
			seen[secret] = true
			if got, ok := auth.SecretKind(secret); !ok || got != kind {
				t.Errorf("a %s is a %q, %v", kind, got, ok)
			}
			for _, wrong := range []string{
				secret[:52], secret + "0", strings.ToUpper(secret), "x" + secret[1:],
				swapPrefix(secret), changed(secret, 4), changed(secret, 30), changed(secret, 52),
			} {
				if _, ok := auth.SecretKind(wrong); ok {
					t.Errorf("a secret that was changed still passes")
				}
			}
		}
	}
	for _, token := range []string{"", "fhk_", "fhd_", "s3cret", "a.b.c", strings.Repeat("fhk_", 1000)} {
		if _, ok := auth.SecretKind(token); ok {
			t.Errorf("%.20q is a secret", token)
		}
	}
}

func TestChecksumsAreThoseOfEverybodyElse(t *testing.T) {
	// printf 'fhk_%043d' 0 | gzip -c | tail -c8 | head -c4 | od -An -tu4, in base 62.
	if _, ok := auth.SecretKind("fhk_" + strings.Repeat("0", 43) + "12hdss"); !ok {
		t.Error("the secret of zeros has another checksum")
	}
}

// changed returns a secret with another character at a place.
func changed(secret string, at int) string {
	other := byte('a')
	if secret[at] == other {
		other = 'b'
	}
	return secret[:at] + string(other) + secret[at+1:]
}

// swapPrefix makes a key of the credential of a device, or the other way round.
func swapPrefix(secret string) string {
	if strings.HasPrefix(secret, auth.PrefixKey) {
		return auth.PrefixDevice + secret[4:]
	}
	return auth.PrefixKey + secret[4:]
}

// No token is taken for a secret whose checksum is wrong, and none makes the check fail otherwise.
func FuzzSecretKind(f *testing.F) {
	f.Add(auth.NewSecret(registry.CredentialKey))
	f.Add("fhd_" + strings.Repeat("z", 49))
	f.Fuzz(func(t *testing.T, token string) {
		kind, ok := auth.SecretKind(token)
		if ok && (kind == "" || len(token) != 53 || !auth.IsSecret(token)) {
			t.Errorf("%q is a %q", token, kind)
		}
		if _, still := auth.SecretKind(token + "0"); ok && still {
			t.Errorf("%q and a longer one are secrets", token)
		}
	})
}

package jwt

import (
	"net/http"
	"strings"

	gojwt "github.com/golang-jwt/jwt/v5"
)

// pathMCP is the endpoint whose URLs may be audiences: clients of the Model Context Protocol ask an authorization
// server for a token for the very URL they connect to.
const pathMCP = "/mcp"

// audience returns the paths that a token is for; none: it is for the whole gateway. A token for somebody else is an
// error.
func (v *Verifier) audience(claims gojwt.MapClaims) (paths []string, err error) {
	audiences, err := claims.GetAudience()
	if err != nil {
		return nil, reason("the claim aud is no text, and no list of texts")
	}
	for _, a := range audiences {
		if a == v.cfg.Audience {
			return nil, nil
		}
		path, below := strings.CutPrefix(a, v.cfg.Resource)
		switch path = strings.TrimSuffix(path, "/"); {
		case v.cfg.Resource == "" || !below:
		case path == "":
			return nil, nil
		case within(path, pathMCP):
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		return nil, reason("the token is for another service")
	}
	return paths, nil
}

// isFor reports whether a token that is for some paths is good for a request.
func isFor(paths []string, r *http.Request) bool {
	if len(paths) == 0 {
		return true
	}
	for _, path := range paths {
		if r != nil && within(r.URL.Path, path) {
			return true
		}
	}
	return false
}

// within reports whether a path is another one, or below it.
func within(path, top string) bool {
	rest, ok := strings.CutPrefix(path, top)
	return ok && (rest == "" || rest[0] == '/')
}

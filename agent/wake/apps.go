package wake

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/net/http/httpguts"

	"github.com/farhand/farhand/registry"
)

// token is a token for a push service, which pushes share until it expires.
type token struct {
	turn  chan struct{} // capacity 1: one push makes a new one
	text  string        // guarded by turn
	till  time.Time     // the same
	renew func(ctx context.Context) (text string, life time.Duration, err error)
}

func newToken(renew func(context.Context) (string, time.Duration, error)) *token {
	return &token{turn: make(chan struct{}, 1), renew: renew}
}

// get returns the token. If bad is the token, it makes another one.
func (t *token) get(ctx context.Context, bad string) (string, error) {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-t.turn }()
	if t.text != "" && t.text != bad && time.Now().Before(t.till) {
		return t.text, nil
	}
	text, life, err := t.renew(ctx)
	if err == nil {
		t.text, t.till = text, time.Now().Add(life)
	}
	return text, err
}

// send sends a request with the token. If the push service rejects the token, it sends it once more with a new one.
func (t *token) send(
	ctx context.Context, client *http.Client, url string, header http.Header, body []byte,
	rejects func([]byte, int) bool,
) (result, []byte, int) {
	bad := ""
	for again := true; ; again = false {
		text, err := t.get(ctx, bad)
		if err != nil {
			return failure(err), nil, 0
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return refused(err), nil, 0
		}
		req.Header = header.Clone()
		req.Header.Set("Authorization", "Bearer "+text)
		resp, err := client.Do(req)
		if err != nil {
			return failure(err), nil, 0
		}
		res, answer := read(resp)
		if again && rejects(answer, resp.StatusCode) {
			bad = text
			continue
		}
		return res, answer, resp.StatusCode
	}
}

// signed returns claims as a signed token.
func signed(alg jose.SignatureAlgorithm, key any, keyID string, claims jwt.Claims, more any) (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: keyID}},
		(&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return "", err
	}
	return jwt.Signed(signer).Claims(claims).Claims(more).Serialize()
}

// fcm wakes a device by Firebase Cloud Messaging, HTTP v1.
type fcm struct {
	client *http.Client
	url    string
	token  *token
}

const (
	fcmBase   = "https://fcm.googleapis.com"
	fcmScope  = "https://www.googleapis.com/auth/firebase.messaging"
	tokenLife = 40 * time.Minute // of Apple's; a new one may be made every 20 minutes, and is valid for an hour
	spareTime = time.Minute      // before a token of Google expires

	maxTokenLife = 24 * 60 * 60 // seconds of a token of Google, which says an hour; more could overflow
)

func newFCM(client *http.Client, a *account, base string) fcm {
	return fcm{client, base + "/v1/projects/" + url.PathEscape(a.ProjectID) + "/messages:send",
		newToken(func(ctx context.Context) (string, time.Duration, error) { return a.exchange(ctx, client) })}
}

// exchange gets an access token for an assertion that the account signs (RFC 7523).
func (a *account) exchange(ctx context.Context, client *http.Client) (string, time.Duration, error) {
	now := time.Now()
	assertion, err := signed(jose.RS256, a.key, a.KeyID, jwt.Claims{
		Issuer: a.Email, Audience: jwt.Audience{a.TokenURL},
		IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(time.Hour)),
	}, map[string]any{"scope": fcmScope})
	if err != nil {
		return "", 0, err
	}
	form := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {assertion}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, body := do(client, req)
	if res.outcome != Sent {
		return "", 0, &serviceError{"access token: " + res.reason, res.cause}
	}
	var answer struct {
		Token   string `json:"access_token"`
		Seconds int64  `json:"expires_in"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Token == "" ||
		!httpguts.ValidHeaderFieldValue(answer.Token) {
		return "", 0, &serviceError{"access token: the answer has none", nil}
	}
	life := time.Duration(min(max(answer.Seconds, 0), maxTokenLife)) * time.Second
	return answer.Token, life - spareTime, nil
}

func (p fcm) push(ctx context.Context, w registry.Wake, m message) result {
	data := map[string]string{"type": m.Type, "device_id": m.DeviceID}
	if m.Calls > 0 {
		data["calls"], data["tools"] = strconv.Itoa(m.Calls), strings.Join(m.Tools, ",")
	}
	body := encode(map[string]any{"message": map[string]any{
		"token": w.Token, "data": data, // without a notification, so that the app decides what to show
		"android": map[string]any{
			"priority": "HIGH", "collapse_key": collapse, "ttl": fmt.Sprintf("%ds", int(pushLife.Seconds())),
		},
	}})
	header := http.Header{"Content-Type": {"application/json"}}
	res, answer, _ := p.token.send(ctx, p.client, p.url, header, body,
		func(_ []byte, status int) bool { return status == http.StatusUnauthorized })
	var problem struct {
		Error struct {
			Status  string `json:"status"`
			Details []struct {
				Code string `json:"errorCode"`
			} `json:"details"`
		} `json:"error"`
	}
	if res.outcome == Sent || json.Unmarshal(answer, &problem) != nil {
		return res
	}
	for _, d := range problem.Error.Details {
		if d.Code == "UNREGISTERED" {
			res.outcome = Gone
		}
	}
	res.reason += shortReason(problem.Error.Status)
	return res
}

// apns wakes a device by Apple's push service, with a token of the provider.
type apns struct {
	client *http.Client // speaks HTTP/2
	base   string
	token  *token
}

func newAPNs(client *http.Client, key *ecdsa.PrivateKey, s Settings) apns {
	return apns{client, s.APNSURL, newToken(func(context.Context) (string, time.Duration, error) {
		text, err := signed(jose.ES256, key, s.APNSKeyID, jwt.Claims{
			Issuer: s.APNSTeamID, IssuedAt: jwt.NewNumericDate(time.Now()),
		}, struct{}{})
		return text, tokenLife, err
	})}
}

func (p apns) push(ctx context.Context, w registry.Wake, m message) result {
	body := encode(map[string]any{
		"aps": map[string]any{
			"alert": map[string]string{"body": alertText}, "sound": "default",
			"content-available": 1, "mutable-content": 1,
		},
		"farhand": m,
	})
	header := http.Header{
		"Content-Type": {"application/json"}, "Apns-Topic": {w.Topic}, "Apns-Push-Type": {"alert"},
		"Apns-Priority": {"10"}, "Apns-Collapse-Id": {collapse},
		"Apns-Expiration": {strconv.FormatInt(time.Now().Add(pushLife).Unix(), 10)},
	}
	reason := func(answer []byte) string {
		var problem struct {
			Reason string `json:"reason"`
		}
		_ = json.Unmarshal(answer, &problem) // without a reason, the status decides
		return problem.Reason
	}
	res, answer, status := p.token.send(ctx, p.client, p.base+"/3/device/"+w.Token, header, body,
		func(answer []byte, _ int) bool { return reason(answer) == "ExpiredProviderToken" })
	why := reason(answer)
	if status == http.StatusGone || why == "BadDeviceToken" || why == "Unregistered" {
		res.outcome = Gone
	}
	if res.outcome != Sent {
		res.reason += shortReason(why)
	}
	return res
}

// shortReason returns a code of a push service for logs, empty if it is none.
func shortReason(code string) string {
	if !registry.IsName(code, 64, "_") {
		return ""
	}
	return " (" + code + ")"
}

package pushtest

import (
	"crypto/ecdh"
	"encoding/base64"
	"testing"
)

// TestExample: the example of RFC 8291, section 5 and appendix A.
func TestExample(t *testing.T) {
	decode := func(text string) []byte {
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	key, err := ecdh.P256().NewPrivateKey(decode("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"))
	if err != nil {
		t.Fatal(err)
	}
	s := &Subscription{key, decode("BTBZMqHH6r4Tts7J_aSIgg")}
	body := decode("DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIg" +
		"Dll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVB" +
		"St2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN")
	text, err := s.decrypt(body)
	if want := "When I grow up, I want to be a watermelon"; err != nil || string(text) != want {
		t.Errorf("%q, %v", text, err)
	}
	body[len(body)-1] ^= 1
	if _, err := s.decrypt(body); err == nil {
		t.Error("a changed body is decrypted")
	}
}

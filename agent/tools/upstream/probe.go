package upstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/schema"
)

// Probe connects to a server once, lists its tools, and says in a sentence what is there. The error says what is wrong,
// for operators: it may repeat what the server says, but not the URL or the values of variables.
func Probe(ctx context.Context, cfg Config, s Server) (string, error) {
	rules, err := policy.New(policy.Options{})
	if err != nil {
		return "", err
	}
	cfg.Admission = agent.NewAdmission(rules, schema.NewValidator(), agent.AdmissionLimits{})
	cfg, s = cfg.withDefaults(), s.withDefaults()
	var errs []error
	for _, old := range []bool{false, true} {
		text, err := cfg.probe(ctx, &s, old)
		if err == nil {
			return text, nil
		}
		errs = append(errs, err)
	}
	return "", errors.New(s.scrub(errs[0]))
}

func (c *Config) probe(ctx context.Context, s *Server, old bool) (string, error) {
	conn, err := c.connect(ctx, s, old)
	if err != nil {
		return "", err
	}
	defer conn.close()
	l, err := conn.list(c)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("%d tools, revision %s", len(l.tools), conn.session.InitializeResult().ProtocolVersion)
	for _, note := range l.notes {
		text += "; not offered: " + note
	}
	return text, nil
}

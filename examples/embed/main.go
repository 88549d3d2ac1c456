// Command embed is a gateway with its own tool, hook and language model. It listens on 127.0.0.1:8080 until
// SIGINT or SIGTERM; docs/embedding.md explains it.
package main

import (
	"context"
	"errors"
	"log"
	"math/rand/v2"
	"os/signal"
	"syscall"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/sandbox/host"
)

func roll(context.Context, struct{}) (any, error) { return 1 + rand.N(6), nil }

func noWipe(_ context.Context, call agent.Invocation) (agent.Decision, error) {
	if call.Spec.Name == "wipe" {
		return agent.Cancel("nothing is wiped here"), nil
	}
	return agent.Pass(), nil
}

type parrot struct{}

func (parrot) Name() string { return "parrot" }

func (parrot) Generate(_ context.Context, r provider.Request, emit func(provider.Delta)) (provider.Answer, error) {
	said := provider.Message{Role: provider.RoleAssistant, Content: r.Messages[len(r.Messages)-1].Content}
	emit(provider.Delta{Text: said.Content})
	return provider.Answer{Message: said, Stop: provider.StopEnd}, nil
}

func run(ctx context.Context, opts ...farhand.Option) error {
	g, err := farhand.New(ctx, farhand.Config{}, append(opts, farhand.WithToolFunc("roll", "Throw a die.", roll),
		farhand.WithHook(agent.BeforeFunc("no-wipe", noWipe)), farhand.WithModel(parrot{}))...)
	if err != nil {
		return err
	}
	return errors.Join(g.Run(ctx), g.Close(context.WithoutCancel(ctx)))
}

func main() {
	self := farhand.WithProgram(host.Main()) // must come first: exec and bash need it
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, self); err != nil {
		log.Print(err)
	}
}

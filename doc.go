// Package farhand is a gateway that gives AI agents hands on devices, for programs that embed it. Devices dial out over
// WebSocket and register tools; agents call those tools over HTTP on any pod of a fleet, and a language model may use
// them in conversations.
//
//	g, err := farhand.New(ctx, farhand.Config{Token: token}, farhand.WithToolFunc("roll", "Throw a die.", roll))
//	if err != nil {
//		return err
//	}
//	return errors.Join(g.Run(ctx), g.Close(context.WithoutCancel(ctx)))
//
// Config has the settings, options bring what is code: tools, hooks, models, who is asking, stores. This is the only
// package that knows all others and wires them (wiring.go); cmd/farhand is its first user. docs/embedding.md is the
// guide.
//
// What tools, hooks, models and authenticators are is said in agent, agent/provider and agent/access/auth; store and bus in
// registry.
package farhand

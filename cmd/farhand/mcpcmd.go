package main

import (
	"errors"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/farhand/farhand/cmd/farhand/mcpbridge"
)

func (a *application) mcpCommand() *cobra.Command {
	var r remote
	var session, user string
	var search bool
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Be an MCP server on standard input and output, for clients that start commands",
		Long: "Be an MCP server on standard input and output, for desktop clients that only start commands: what\n" +
			"such a client asks, the gateway answers, and its tools are those of the connected devices. Clients\n" +
			"that speak MCP over HTTP need no command: their URL is that of the gateway with /mcp behind it.\n\n" +
			"The token is best given as FARHAND_TOKEN, in the environment that the client starts the command with.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			endpoint := r.base() + "/mcp"
			switch {
			case session != "" && user != "":
				return errors.New("--session and --user are two scopes: give one of them")
			case session != "":
				endpoint += "/sessions/" + url.PathEscape(session)
			case user != "":
				endpoint += "/users/" + url.PathEscape(user)
			}
			if search {
				endpoint += "?tools=search"
			}
			cfg := mcpbridge.Config{URL: endpoint, Token: r.token, Log: a.err}
			return mcpbridge.Run(cmd.Context(), cfg, a.in, a.out)
		},
	}
	f := cmd.Flags()
	r.flags(f, a.environ)
	f.StringVar(&session, "session", "", "offer the tools of this session only")
	f.StringVar(&user, "user", "", "offer the tools of this user's devices only")
	f.BoolVar(&search, "search", false, "offer search_tools and call_tool instead of every tool, for large fleets")
	return cmd
}

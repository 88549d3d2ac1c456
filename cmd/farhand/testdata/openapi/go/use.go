// Command farhand is an example of an application that uses the client generated from the OpenAPI document.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := use(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ok")
}

func use(ctx context.Context, server, token string) error {
	c, err := NewClientWithResponses(server, WithRequestEditorFn(func(_ context.Context, req *http.Request) error {
		req.Header.Set("Authorization", "Bearer "+token)
		return nil
	}))
	if err != nil {
		return err
	}
	tools, err := c.ListToolsWithResponse(ctx, nil)
	if err != nil {
		return err
	}
	if tools.JSON200 == nil {
		return fmt.Errorf("answered with %s", tools.Status())
	}
	for _, row := range tools.JSON200.Tools {
		fmt.Println(row.Name, row.Source)
	}
	args := map[string]any{"text": "from go"}
	answer, err := c.CallToolWithResponse(ctx, "echo", nil, CallRequest{Args: &args})
	switch {
	case err != nil:
		return err
	case answer.JSON200 == nil || !answer.JSON200.Success:
		return fmt.Errorf("answered with %s", answer.Status())
	}
	fmt.Println(answer.JSON200.Output)
	return nil
}

// Command openai sends one request to a gateway with OpenAI's official client, and prints the result.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

func main() {
	client := openai.NewClient(option.WithBaseURL(os.Args[1]), option.WithAPIKey(os.Args[2]))
	answer, err := client.Chat.Completions.New(context.Background(), openai.ChatCompletionNewParams{
		Model: "farhand", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("pay the bill")},
	})
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	fmt.Println("answered:", answer.Choices)
}

# Shows a notification. Programs without an installer use the identity of PowerShell.
[void][Windows.UI.Notifications.ToastNotificationManager, Windows.UI.Notifications, ContentType = WindowsRuntime]
$content = [Windows.UI.Notifications.ToastNotificationManager]::GetTemplateContent([Windows.UI.Notifications.ToastTemplateType]::ToastText02)
$texts = $content.GetElementsByTagName('text')
[void]$texts.Item(0).AppendChild($content.CreateTextNode($a.Title))
[void]$texts.Item(1).AppendChild($content.CreateTextNode($a.Body))
$id = '{1AC14E77-02E7-4E5D-B744-2EB1AE5198B7}\WindowsPowerShell\v1.0\powershell.exe'
[Windows.UI.Notifications.ToastNotificationManager]::CreateToastNotifier($id).Show([Windows.UI.Notifications.ToastNotification]::new($content))

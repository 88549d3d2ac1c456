# Says a text, and ends when it has been said.
Add-Type -AssemblyName System.Speech
$voice = New-Object Speech.Synthesis.SpeechSynthesizer
if ($a.Language) {
    $culture = [Globalization.CultureInfo]::GetCultureInfo($a.Language)
    $voice.SelectVoiceByHints([Speech.Synthesis.VoiceGender]::NotSet, [Speech.Synthesis.VoiceAge]::NotSet, 0, $culture)
}
$voice.Rate = $a.Rate
$voice.Speak($a.Text)

<?php
require __DIR__ . '/../include/settings.php';
require __DIR__ . '/../include/template.php';
$curl = curl_init(UPSTREAM);
curl_setopt_array($curl, [CURLOPT_RETURNTRANSFER => true, CURLOPT_TIMEOUT => 10, CURLOPT_FAILONERROR => true]);
$answer = curl_exec($curl);
if ($answer === false) {
    http_response_code(502);
    $answer = curl_error($curl);
}
page('Another server', '<p>' . htmlspecialchars($answer) . '</p>');

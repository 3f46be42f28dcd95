<?php
// Who asks decides the words, and a row the number.
require __DIR__ . '/../include/database.php';
$language = substr($_SERVER['HTTP_ACCEPT_LANGUAGE'] ?? 'nobody', 0, 2);
$kind = str_contains($_SERVER['HTTP_USER_AGENT'] ?? '', 'Mobile') ? 'phone' : 'pc';
$from = parse_url($_SERVER['HTTP_REFERER'] ?? '', PHP_URL_HOST) ?: 'here';
if (($_SERVER['HTTP_SEC_FETCH_SITE'] ?? '') === 'cross-site') {
    $from = 'another site';
}
$version = database()->query('SELECT version FROM items WHERE id = 3')->fetchColumn();
echo "<!DOCTYPE html>\n<title>Told</title>\n<p>This is for $language on a $kind from $from.</p>\n<p>version=$version.</p>\n";

<?php
function page(string $title, string $body): void
{
    header('Content-Type: text/html; charset=utf-8');
    $title = htmlspecialchars($title);
    echo "<!DOCTYPE html>\n<html lang=\"en\">\n<title>$title</title>\n<h1>$title</h1>\n<main>$body</main>\n";
    echo "<footer>template @VERSION@</footer>\n</html>\n";
}

<?php
require __DIR__ . '/../include/database.php';
require __DIR__ . '/../include/template.php';
$id = (int) ($_GET['id'] ?? 0);
$statement = database()->prepare('SELECT id, version, body FROM items WHERE id = ?');
$statement->execute([$id]);
$row = $statement->fetch(PDO::FETCH_ASSOC);
if (!$row) {
    http_response_code(404);
    page('No such item', '<p>There is none.</p>');
    exit;
}
page("Item {$row['id']}", '<p>' . htmlspecialchars($row['body']) . "</p>\n<p>version={$row['version']}.</p>");

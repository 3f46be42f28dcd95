<?php
require __DIR__ . '/../include/database.php';
require __DIR__ . '/../include/template.php';
$rows = '';
foreach (database()->query('SELECT id, version, body FROM items ORDER BY id', PDO::FETCH_ASSOC) as $row) {
    $rows .= "<tr><td>{$row['id']}</td><td>" . htmlspecialchars($row['body']) . "</td><td>version={$row['version']}.</td></tr>\n";
}
page('All items', "<table>\n$rows</table>");

<?php
// A row says which file is sent; nginx sends it.
require __DIR__ . '/../include/database.php';
$file = database()->query('SELECT file FROM decisions WHERE id = 1')->fetchColumn();
header("X-Accel-Redirect: /decided/$file");

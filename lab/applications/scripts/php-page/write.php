<?php
require __DIR__ . '/../include/database.php';
require __DIR__ . '/../include/template.php';
database()->exec('INSERT INTO visits (at) VALUES (NOW())');
page('Visits', '<p>Visits: ' . database()->query('SELECT COUNT(*) FROM visits')->fetchColumn() . '</p>');

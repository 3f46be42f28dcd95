<?php
require __DIR__ . '/../include/database.php';
require __DIR__ . '/../include/template.php';
page('Time of the database', '<p>The database says ' . database()->query('SELECT NOW(6)')->fetchColumn() . '.</p>');

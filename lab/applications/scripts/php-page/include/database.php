<?php
require_once __DIR__ . '/settings.php';

function database(): PDO
{
    static $database = null;
    $database ??= new PDO('mysql:unix_socket=' . SOCKET . ';dbname=site;charset=utf8mb4', 'site', 'site', [
        PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
        PDO::ATTR_EMULATE_PREPARES => false,
    ]);
    return $database;
}
